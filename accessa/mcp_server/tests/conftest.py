"""Fixtures that take away one layer of tenancy."""

from accessa.tests.test_tenant_isolation import unscoped, without_policies  # noqa: F401 - fixtures
