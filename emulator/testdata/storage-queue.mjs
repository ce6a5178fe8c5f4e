// What Microsoft's JavaScript client does with the emulator, unchanged. Started by
// TestStorageQueueJS, which says where everything is; it prints what it has done, a
// line for each part, and stops at the first thing that is not as it should be.
import assert from "node:assert/strict";
import { createRequire } from "node:module";

const { connection, https, token, development, modules } = JSON.parse(process.env.MILLRACE_TEST);
const {
  AccountSASPermissions, AccountSASResourceTypes, AccountSASServices, generateAccountSASQueryParameters, generateQueueSASQueryParameters,
  QueueClient, QueueSASPermissions, QueueServiceClient, SASProtocol, StorageSharedKeyCredential,
} = createRequire(modules + "/")("@azure/storage-queue");

const options = { retryOptions: { maxTries: 1 } };
const inAnHour = () => new Date(Date.now() + 3600e3);
const code = (wanted) => (error) => error.code === wanted || error.details?.errorCode === wanted || assert.fail(`${error.code}, not ${wanted}: ${error.message}`);

async function messages(service, name) {
  const queue = service.getQueueClient(name);
  await queue.create({ metadata: { kind: "test", a_b: "1", a1b: "2" } });
  // No line ends: this client takes line feeds out of what it sends.
  await queue.sendMessage("<&> \"' привет", { messageTimeToLive: -1 });
  await queue.sendMessage("second", { visibilityTimeout: 0 });
  const peeked = await queue.peekMessages({ numberOfMessages: 32 });
  assert.deepEqual(peeked.peekedMessageItems.map((m) => m.messageText), ["<&> \"' привет", "second"]);
  const { receivedMessageItems: [first, second] } = await queue.receiveMessages({ numberOfMessages: 2, visibilityTimeout: 60 });
  assert.equal(first.dequeueCount, 1);
  const updated = await queue.updateMessage(first.messageId, first.popReceipt, undefined, 30); // keeps the text
  await assert.rejects(queue.deleteMessage(first.messageId, first.popReceipt), code("PopReceiptMismatch"));
  await queue.deleteMessage(first.messageId, updated.popReceipt);
  await queue.updateMessage(second.messageId, second.popReceipt, "changed", 0);
  assert.equal((await queue.receiveMessages()).receivedMessageItems[0].messageText, "changed");
  const properties = await queue.getProperties();
  assert.equal(properties.approximateMessagesCount, 1);
  assert.deepEqual(properties.metadata, { kind: "test", a_b: "1", a1b: "2" });
  await queue.setMetadata({ kind: "other" });
  await queue.clearMessages();
  assert.equal((await queue.getProperties()).approximateMessagesCount, 0);
  const names = [];
  for await (const item of service.listQueues({ includeMetadata: true, prefix: name })) names.push([item.name, item.metadata.kind]);
  assert.deepEqual(names, [[name, "other"]]);
  return queue;
}

const service = QueueServiceClient.fromConnectionString(connection, options);
const queue = await messages(service, "orders");
console.log("messages");

await service.setProperties({
  queueAnalyticsLogging: { version: "1.0", deleteProperty: true, read: true, write: true, retentionPolicy: { enabled: true, days: 7 } },
  cors: [{ allowedOrigins: "*", allowedMethods: "GET", allowedHeaders: "", exposedHeaders: "", maxAgeInSeconds: 5 }],
});
const properties = await service.getProperties();
assert.equal(properties.queueAnalyticsLogging.retentionPolicy.days, 7);
assert.equal(properties.cors[0].maxAgeInSeconds, 5);
assert.equal(properties.hourMetrics.enabled, false);
const credential = service.credential;
const secondary = new QueueServiceClient(service.url + "-secondary", credential, options);
assert.equal((await secondary.getStatistics()).geoReplication.status, "live");
await assert.rejects(service.getStatistics(), code("InvalidQueryParameterValue"));
console.log("service");

await queue.setAccessPolicy([{ id: "workers", accessPolicy: { startsOn: new Date(), expiresOn: inAnHour(), permissions: "ap" } }]);
const { signedIdentifiers } = await queue.getAccessPolicy();
assert.equal(signedIdentifiers[0].accessPolicy.permissions, "ap");
const worker = new QueueClient(await queue.generateSasUrl({ identifier: "workers" }), undefined, options);
await worker.sendMessage("by policy");
assert.equal((await worker.receiveMessages()).receivedMessageItems[0].messageText, "by policy");
await assert.rejects(worker.peekMessages(), code("AuthorizationPermissionMismatch"));
const reader = new QueueClient(await queue.generateSasUrl({ permissions: QueueSASPermissions.parse("r"), expiresOn: inAnHour(), ipRange: { start: "127.0.0.1" } }), undefined, options);
await reader.peekMessages();
await assert.rejects(reader.sendMessage("x"), code("AuthorizationPermissionMismatch"));
for (const version of ["2018-11-09", undefined]) {
  const sas = generateAccountSASQueryParameters({ version, services: AccountSASServices.parse("q").toString(), resourceTypes: AccountSASResourceTypes.parse("sco").toString(),
    permissions: AccountSASPermissions.parse("rl"), expiresOn: inAnHour(), protocol: SASProtocol.HttpsAndHttp }, credential);
  const lister = new QueueServiceClient(`${service.url}?${sas}`, undefined, options);
  for await (const item of lister.listQueues()) assert.equal(item.name, "orders");
  await assert.rejects(lister.createQueue("another"), code("AuthorizationPermissionMismatch"));
}
await assert.rejects(new QueueClient(queue.url, undefined, options).getProperties(), (error) => error.statusCode === 401);
console.log("signatures");

const identity = { getToken: async (scopes) => ({ token: [scopes].flat()[0] === "https://storage.azure.com/.default" ? token : "", expiresOnTimestamp: Date.now() + 3600e3 }) };
const tokenService = new QueueServiceClient(https, identity, options);
await messages(tokenService, "tokens");
const key = await tokenService.getUserDelegationKey(new Date(Date.now() - 60e3), inAnHour());
const delegated = generateQueueSASQueryParameters({ queueName: "tokens", permissions: QueueSASPermissions.parse("a"), expiresOn: inAnHour() }, key, "devstoreaccount1");
const writer = new QueueClient(`${https}/tokens?${delegated}`, undefined, options);
await writer.sendMessage("by delegation");
await assert.rejects(writer.receiveMessages(), code("AuthorizationPermissionMismatch"));
console.log("tokens");

const local = QueueServiceClient.fromConnectionString("UseDevelopmentStorage=true", options);
assert.equal(local.url, "http://127.0.0.1:10001/devstoreaccount1");
assert.ok(local.credential instanceof StorageSharedKeyCredential);
if (development) await messages(local, "development");
console.log("development");
