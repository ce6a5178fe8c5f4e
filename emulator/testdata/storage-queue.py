"""What Microsoft's Python client does on one side of a Millrace program, unchanged.

Started by TestPython, which says where everything is. "send" sends jobs to queues that a listener
works off. "receive" receives what a producer has sent, deletes it, and prints a line of JSON for each
queue.
"""
import json
import os
import sys

from azure.storage.queue import (
    BinaryBase64DecodePolicy, BinaryBase64EncodePolicy, QueueClient, TextBase64DecodePolicy, TextBase64EncodePolicy,
)

settings = json.loads(os.environ["MILLRACE_TEST"])
policies = {
    "text": (None, None),
    "textbase64": (TextBase64EncodePolicy(), TextBase64DecodePolicy()),
    "binarybase64": (BinaryBase64EncodePolicy(), BinaryBase64DecodePolicy()),
}


def client(direction, policy):
    encode, decode = policies[policy]
    return QueueClient.from_connection_string(
        settings["connection"], f"{direction}-{policy}",
        message_encode_policy=encode, message_decode_policy=decode, retry_total=0)


def send(policy):
    with client("from-python", policy) as queue:
        queue.create_queue()
        for job in settings["jobs"]:
            text = json.dumps(job, ensure_ascii=False)
            queue.send_message(text.encode() if policy == "binarybase64" else text)
        assert queue.get_queue_properties().approximate_message_count == len(settings["jobs"])
        assert len(queue.peek_messages(max_messages=32)) == len(settings["jobs"])


def receive(policy):
    jobs = []
    with client("to-python", policy) as queue:
        for message in queue.receive_messages(messages_per_page=2, visibility_timeout=60):
            assert message.dequeue_count == 1, message
            jobs.append(json.loads(message.content))
            renewed = queue.update_message(message, visibility_timeout=60)  # as a worker does that takes long
            queue.delete_message(message.id, renewed.pop_receipt)
        assert queue.get_queue_properties().approximate_message_count == 0
    print(json.dumps(jobs))


for policy in settings["policies"]:
    {"send": send, "receive": receive}[sys.argv[1]](policy)
