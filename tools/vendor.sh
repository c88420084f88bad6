#!/bin/sh
# Fetch the third-party files that our web pages load, and put them below api/static/vendor, from where the API serves
# them and the wheel packs them. They come from the npm registry that this machine is configured for.
# What is there already in the right version is reused.
set -eu
cd "$(dirname "$0")/.."

SWAGGER_UI=5.35.0
vendor=api/static/vendor
target="$vendor/swagger-ui"

if [ "$(cat "$target/VERSION" 2>/dev/null)" = "$SWAGGER_UI" ]; then
    echo "vendor: swagger-ui $SWAGGER_UI is there"
    exit 0
fi
command -v npm >/dev/null || { echo "vendor: npm is missing; install the Debian package npm" >&2; exit 1; }

echo "vendor: fetching swagger-ui-dist $SWAGGER_UI from the configured npm registry into $target"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
npm pack --silent --pack-destination "$work" "swagger-ui-dist@$SWAGGER_UI" >/dev/null
tar -xzf "$work"/swagger-ui-dist-*.tgz -C "$work"
mkdir "$work/swagger-ui"
for file in swagger-ui.css swagger-ui-bundle.js LICENSE NOTICE; do
    cp "$work/package/$file" "$work/swagger-ui/$file"
done
# A map would be asked for by a browser's developer tools and is not there.
sed -i '/^\/\/# sourceMappingURL=/d' "$work/swagger-ui/swagger-ui-bundle.js"
sed -i '/^\/\*# sourceMappingURL=/d' "$work/swagger-ui/swagger-ui.css"
echo "$SWAGGER_UI" > "$work/swagger-ui/VERSION"
mkdir -p "$vendor"
rm -rf "$target"
mv "$work/swagger-ui" "$target"
