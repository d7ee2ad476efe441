import datetime
import os

from keras_adaptive.distribution.strategy import Strategy


class Ddp(Strategy):
    """Strategy of torch with one process per device, launched by `torchrun`."""

    def __init__(self, timeout):
        import torch

        if "RANK" not in os.environ:
            raise ValueError(
                "The strategy 'ddp' needs one process per device: launch the processes with "
                "`torchrun --nproc_per_node=DEVICES -m trainers.train ...`. Received: no RANK in the environment."
            )
        cuda = torch.cuda.is_available()
        if cuda:
            torch.cuda.set_device(int(os.environ["LOCAL_RANK"]))
        if not torch.distributed.is_initialized():
            torch.distributed.init_process_group(
                "nccl" if cuda else "gloo", timeout=datetime.timedelta(seconds=timeout)
            )
        processes = torch.distributed.get_world_size()
        super().__init__(processes, processes, torch.distributed.get_rank(), own_rows=True)

    def synchronize(self, model):
        import torch

        with torch.no_grad():
            for variable in model.variables:
                torch.distributed.broadcast(variable.value, 0)

    def all_reduce_max(self, number):
        import torch

        largest = torch.tensor(number, device="cuda" if torch.cuda.is_available() else "cpu")
        torch.distributed.all_reduce(largest, torch.distributed.ReduceOp.MAX)
        return int(largest)
