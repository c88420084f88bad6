"""The security checker: known vulnerabilities, licences, malware, and the policy that stops a publication."""
