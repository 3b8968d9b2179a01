"""Amazon SQS: client, messages and dead letters."""

# https://docs.aws.amazon.com/AWSSimpleQueueService/latest/APIReference/API_ReceiveMessage.html
SETTING_BOUNDS = {
    "SQS_WAIT_SECONDS": (1, 20), "SQS_VISIBILITY_SECONDS": (3, 12 * 3600), "SQS_MESSAGES_AT_ONCE": (1, 10),
}  # fmt: skip
