"""Auth: who calls, and what the policy allows."""
