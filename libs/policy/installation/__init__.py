"""Objects that must exist before Sluice runs: namespace, ServiceAccounts and RBAC.

They are applied by the person who installs Sluice, never by a service: a service that can grant
permissions effectively has all of them.
"""
