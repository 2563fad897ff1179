"""Where live metrics come from: a Prometheus server, or slotune's own scraper."""
