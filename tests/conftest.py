import os

os.environ["HF_HUB_OFFLINE"] = "1"
os.environ["MPLBACKEND"] = "Agg"

import torch

torch.set_num_threads(1)  # small models: threads cost more than they give
