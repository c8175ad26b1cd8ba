def complaints(root, files):
    return []
