// Sends what JavaScript programs send with Microsoft's client, in the ways that are usual or usual
// mistakes, and reads what Millrace sends for other consumers. Started by
// TestTheSamplesAreWhatJavaScriptSends, which says where everything is; it prints the name of the
// sample for each message id.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const { connection, modules } = JSON.parse(process.env.MILLRACE_TEST);
const { QueueServiceClient } = createRequire(modules + "/")("@azure/storage-queue");
const service = QueueServiceClient.fromConnectionString(connection, { retryOptions: { maxTries: 1 } });

const job = { id: "7", count: 3, note: 'grüß "dich"' };
const base64 = (text) => Buffer.from(text).toString("base64");
const samples = {
  "javascript": JSON.stringify(job),
  "javascript-base64": base64(JSON.stringify(job)),
  "javascript-object": String(job),
  "javascript-twice": JSON.stringify(JSON.stringify(job)),
  "javascript-null": JSON.stringify(null),
  "javascript-wrong-type": JSON.stringify({ id: 7, count: "three" }),
  "javascript-text-base64": base64("order 7"),
};
const names = {};
for (const [name, text] of Object.entries(samples)) names[(await service.getQueueClient("samples").sendMessage(text)).messageId] = name;

const { receivedMessageItems } = await service.getQueueClient("replies").receiveMessages({ numberOfMessages: 32 });
const bodies = receivedMessageItems.map((m) => m.messageText);
assert.deepEqual(bodies.map((text) => JSON.parse(text.startsWith("{") ? text : Buffer.from(text, "base64").toString())), [{ ID: "7" }, { ID: "7" }]);
console.log(JSON.stringify(names));
