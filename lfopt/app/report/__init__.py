"""The page that `lfopt report` writes: its data (`content`), where operators are drawn (`layout`), why groups
end (`cuts`), and the page (`page`).
"""
