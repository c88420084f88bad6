"""Services beside static trees: the registry of images, users' own uploads, images built at the site."""
