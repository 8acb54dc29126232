"""JSON objects: encoding, patches, field ownership, selectors. Independent of the store."""
