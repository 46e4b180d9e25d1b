"""Files of steps, of this project and of others: finding, reading, joining and writing them."""
