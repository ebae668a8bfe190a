NAME = "from next door"
