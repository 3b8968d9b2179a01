"""Client of Accessa's API."""

from accessa_client.client import AccessaError, Client, Job, Upload
from accessa_client.webhooks import WebhookError, verify_webhook

__all__ = ["AccessaError", "Client", "Job", "Upload", "WebhookError", "verify_webhook"]
