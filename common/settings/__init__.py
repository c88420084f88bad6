"""Settings of the services that a site chooses: keys, types, ranges and defaults, each said here and nowhere else.

`site.yml` embeds these models, and each service's own settings are made of them. All are pure but `environment`.
"""
