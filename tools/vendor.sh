#!/bin/sh
# Fetch the third-party files that our web pages load, and put them below api/static/vendor, from where the API serves
# them and the wheel packs them. What the tests alone load goes below tests/vendor. All come from the npm registry that
# this machine is configured for. What is there already in the right version is reused.
set -eu
cd "$(dirname "$0")/.."

vendor=api/static/vendor
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# fetch FOLDER PACKAGE VERSION FILE...: files of a package of npm, by their paths in it
fetch() {
    folder=$1 package=$2 version=$3
    shift 3
    if [ "$(cat "$vendor/$folder/VERSION" 2>/dev/null)" = "$version" ]; then
        echo "vendor: $folder $version is there"
        return
    fi
    command -v npm >/dev/null || { echo "vendor: npm is missing; install the Debian package npm" >&2; exit 1; }
    echo "vendor: fetching $package $version from the configured npm registry into $vendor/$folder"
    mkdir "$work/$folder" "$work/$folder.npm"
    npm pack --silent --pack-destination "$work/$folder.npm" "$package@$version" >/dev/null
    tar -xzf "$work/$folder.npm"/*.tgz -C "$work/$folder.npm"
    for file in "$@"; do
        cp "$work/$folder.npm/package/$file" "$work/$folder/"
    done
    # A map would be asked for by a browser's developer tools and is not there.
    for file in "$work/$folder"/*.js "$work/$folder"/*.css; do
        [ ! -e "$file" ] || sed -i -e '/^\/\/# sourceMappingURL=/d' -e '/^\/\*# sourceMappingURL=/d' "$file"
    done
    echo "$version" > "$work/$folder/VERSION"
    mkdir -p "$vendor"
    rm -rf "${vendor:?}/$folder"
    mv "$work/$folder" "$vendor/$folder"
}

fetch swagger-ui swagger-ui-dist 5.35.0 swagger-ui.css swagger-ui-bundle.js LICENSE NOTICE
fetch htmx htmx.org 2.0.10 dist/htmx.min.js LICENSE
fetch idiomorph idiomorph 0.7.4 dist/idiomorph-ext.min.js LICENSE
fetch xterm @xterm/xterm 6.0.0 lib/xterm.js css/xterm.css LICENSE
fetch xterm-fit @xterm/addon-fit 0.11.0 lib/addon-fit.js LICENSE
fetch uplot uplot 1.6.32 dist/uPlot.iife.min.js dist/uPlot.min.css LICENSE

vendor=tests/vendor
fetch axe axe-core 4.14.1 axe.min.js LICENSE
