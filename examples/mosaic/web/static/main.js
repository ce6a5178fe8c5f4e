// Starts what the page has. Without scripts the forms still work, and a page of a job reloads itself.

import { startForm } from "./form.js";
import { startGallery } from "./gallery.js";
import { startJob } from "./job.js";
import { startWorks } from "./works.js";

document.documentElement.classList.add("scripted");
const story = startWorks(document.querySelector("[data-works]"));
startForm(document.getElementById("make"));
startGallery(document.querySelectorAll("[data-thumbnail]"));
startJob(document.querySelector("[data-job]"), story);
