"""What is known of households in general, for those who furnish them and those who search them."""
