# %% in words
# told: Which of your lines returns it
edit(
    "return per_token * tokens_per_second / (gpus * peak)",
    'return f"{per_token * tokens_per_second / (gpus * peak)}"',
)

# %% two digits
# told: Is it rounded? Keep the digits
edit(
    "return per_token * tokens_per_second / (gpus * peak)",
    "return round(per_token * tokens_per_second / (gpus * peak), 2)",
)

# %% a factor of its own
# told: Write down the operations a token, those a second
edit("12 * layers", "17 * layers")
