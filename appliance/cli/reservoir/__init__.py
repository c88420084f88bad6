"""`penstock reservoir`: bundles, from the manifest to what the site serves."""

from __future__ import annotations

from appliance.cli.options import group
from appliance.cli.reservoir import bundle, image, key, media, publication, scan, site, uploads

app = group("Bundles: lock, build, verify, import, publish.")
image_app = group("Images of the site's own: build.")
key_app = group("The key that signs bundles: new, show, rotate.")
uploads_app = group("Users' own Python packages: allow, deny, list, add and remove accounts.")

app.command("lock")(bundle.lock_command)
app.command("build")(bundle.build_command)
app.command("verify")(bundle.verify_command)
app.command("scan")(scan.scan_command)
app.command("split")(media.split_command)
app.command("import")(site.import_command)
app.command("receipt")(media.receipt_command)
app.command("publish")(site.publish_command)
app.command("rollback")(publication.rollback_command)
app.command("prune")(publication.prune_command)
app.command("remove")(publication.remove_command)
app.command("status")(publication.status_command)
app.add_typer(image_app, name="image")
image_app.command("build")(image.build_command)
app.add_typer(key_app, name="key")
key_app.command("new")(key.key_new)
key_app.command("show")(key.key_show)
key_app.command("rotate")(key.key_rotate)
app.add_typer(uploads_app, name="uploads")
uploads_app.command("allow")(uploads.allow_command)
uploads_app.command("deny")(uploads.deny_command)
uploads_app.command("list")(uploads.list_command)
uploads_app.command("add-owner")(uploads.owner_add)
uploads_app.command("remove-owner")(uploads.owner_remove)
uploads_app.command("add-account")(uploads.account_add)
uploads_app.command("remove-account")(uploads.account_remove)
uploads_app.command("prepare")(uploads.prepare_command)
