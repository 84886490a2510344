"""Values as typed columns: one file per format; `formats` chooses among them."""
