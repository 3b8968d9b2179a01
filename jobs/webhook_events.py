"""SQL that writes events for tenants' webhooks and mails into the outbox, in the statement that decides them.

The tables belong to `outbox` and are known here by their names only: jobs import nothing of it.
"""

# Of documents only, as users.notify says. The mail of a day is one row, whichever event comes first: its id is made of
# user and day, and it is due the next morning (UTC).
_RECEIVERS = """
    SELECT gen_random_uuid() AS id, 'webhook' AS kind, e.id AS target_id, {type} AS type, clock_timestamp() AS due_at
    FROM webhook_endpoints e WHERE e.user_id = s.user_id AND e.enabled AND {type} = ANY(e.events)
    UNION ALL
    SELECT CASE u.notify WHEN 'each' THEN gen_random_uuid() ELSE md5(u.id::text || ':' || today)::uuid END,
           'mail', u.id, CASE u.notify WHEN 'each' THEN {type} ELSE 'documents.daily' END,
           CASE u.notify WHEN 'each' THEN clock_timestamp()
                ELSE (today::timestamp + interval '1 day 7 hours') AT TIME ZONE 'UTC' END
    FROM users u, CAST(statement_timestamp() AT TIME ZONE 'UTC' AS date) today
    WHERE u.id = s.user_id AND u.is_active AND u.notify <> 'off' AND {type} LIKE 'document.%%'"""


def insert_events(type: str, data: str, subjects: str) -> str:
    """Return the INSERT of a message for each webhook that wants the event, and of the mail that its owner wants.

    ``type`` and ``data`` are SQL of a text and a jsonb, ``subjects`` SQL of what FROM has, with ``s.user_id``.
    """
    return f"""
        INSERT INTO outbox (id, user_id, kind, target_id, payload, due_at)
        SELECT r.id, s.user_id, r.kind, r.target_id,
               jsonb_build_object('type', r.type, 'timestamp', statement_timestamp(), 'data', {data}), r.due_at
        FROM {subjects} CROSS JOIN LATERAL ({_RECEIVERS.format(type=type)}) r
        ON CONFLICT (id) DO NOTHING"""
