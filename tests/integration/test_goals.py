"""Goals on a real server: planned, carried out, judged, decided about, and steered in between."""
