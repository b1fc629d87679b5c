"""The page of `lfopt report`: its data (`content`), drawings (`layout`), why groups end (`cuts`), `page`."""
