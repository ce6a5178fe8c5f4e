// Opens texts with the reader that docs/protocol.md shows, and seals the same again. Started by
// TestTheReaderOfTheProtocolReadsEnvelopes.
import { readFileSync } from "node:fs";

const page = readFileSync(process.argv[2], "utf8");
const [, source] = /\n```js\n(function open[^]*?)```\n/.exec(page);
const open = new Function(source + "return open;")();

const results = JSON.parse(readFileSync(0, "utf8")).map(({ text, kinds }) => {
  try {
    const { head, body } = open(text, kinds);
    const version = head.kd ? 2 : 1;
    const again = `millrace/${version}?${new URLSearchParams({ ...head, e: "64" })}\n${body.toString("base64")}`;
    return { head, body: body.toString("base64"), again };
  } catch (e) {
    return { error: e.message };
  }
});
console.log(JSON.stringify(results));
