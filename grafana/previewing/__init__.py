"""What the preview pictures are made of: an invented day, and its drawing."""
