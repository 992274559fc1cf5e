"""The HTTP side: sends the bytes of the last snapshot, and asks nobody for anything while it does.

Guarantees that a scrape costs no driver, kubelet or API-server call, and that no client (idle, slow, hostile, many)
delays another. Does not render, sample or decide what is on the page.
"""
