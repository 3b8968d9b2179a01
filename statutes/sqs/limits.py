"""What SQS allows of the numbers that it is told."""

from __future__ import annotations

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html
BOUNDS = {"SQS_WAIT_SECONDS": (1, 20), "SQS_VISIBILITY_SECONDS": (3, 12 * 3600), "SQS_MESSAGES_AT_ONCE": (1, 10)}
