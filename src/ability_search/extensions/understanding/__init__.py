"""Query understanding and dates, without a model: exclusions, periods, intent. Pure, English."""
