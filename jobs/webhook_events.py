"""SQL that writes events for tenants' webhooks into the outbox, in the statement or transaction that decides them.

The tables belong to `outbox` and are known here by their names only: jobs import nothing of it.
"""


def insert_events(type: str, data: str, subjects: str) -> str:
    """Return the INSERT of a message for each webhook that wants the event; without a webhook it writes no row.

    ``type`` and ``data`` are SQL of a text and a jsonb, ``subjects`` SQL of what FROM has, with ``s.user_id``.
    """
    return f"""
        INSERT INTO outbox (id, user_id, kind, target_id, payload)
        SELECT gen_random_uuid(), s.user_id, 'webhook', e.id,
               jsonb_build_object('type', {type}, 'timestamp', clock_timestamp(), 'data', {data})
        FROM {subjects} JOIN webhook_endpoints e
            ON e.user_id = s.user_id AND e.enabled AND {type} = ANY(e.events)"""
