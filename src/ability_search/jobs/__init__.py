"""Jobs: long operations recorded in the database, each leased by one worker."""
