"""createrepo_c, which looks for rpm's configuration as soon as it is imported: it gets an empty one.

Machines that build bundles or serve them have no rpm, and those that have it must not make other metadata.
"""

from pathlib import Path

from common.errors import UnavailableError
from reservoir import settings

with settings.variable("RPM_CONFIGDIR", str(Path(__file__).with_name("config"))):
    try:
        import createrepo_c
    except ImportError as error:
        raise UnavailableError(
            f"RPM packages cannot be described on this machine: {error}",
            where="createrepo_c",
            hint="deploy the site from the product's bundle first, or install the Debian package libglib2.0-0",
        ) from error

__all__ = ["createrepo_c"]
