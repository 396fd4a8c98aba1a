"""Programs that measure speed and recall; they record numbers and assert no times."""
