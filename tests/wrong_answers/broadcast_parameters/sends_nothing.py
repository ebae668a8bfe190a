# wrong: everybody loads the own state
# told: No rank has sent anything
# right at: 1
def broadcast_parameters(model):
    model.load_state_dict(model.state_dict())
