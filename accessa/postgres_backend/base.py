"""ENGINE = "accessa.postgres_backend": Django's backend, whose health check of a kept connection needs no statement."""

import select

from django.db.backends.postgresql import base
from psycopg.pq import TransactionStatus


class DatabaseWrapper(base.DatabaseWrapper):
    def is_usable(self) -> bool:
        """Tell whether the server still holds the connection: to an idle one it sends nothing but its end."""
        if self.connection is None or self.connection.info.transaction_status != TransactionStatus.IDLE:
            return super().is_usable()
        poll = select.poll()
        poll.register(self.connection.pgconn.socket, select.POLLIN)
        return not poll.poll(0) or super().is_usable()
