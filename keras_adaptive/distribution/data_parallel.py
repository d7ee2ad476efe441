import os
import re

import keras
import numpy as np

from keras_adaptive.backend.replicas import AXIS
from keras_adaptive.distribution.strategy import Strategy
from keras_adaptive.layers.inputs.input import Input
from keras_adaptive.layers.outputs.output import Output

JAX_PROCESSES = "KERAS_DISTRIBUTION_NUM_PROCESSES"
TABLES = r"(.*/)?table_\d+"  # matches the paths of word tables in layers of any name


class DataParallel(Strategy):
    """Strategy of JAX, with or without sharded word tables. Each process passes its own rows to its devices."""

    def __init__(self, shares_tables, model_devices):
        import jax

        if os.environ.get(JAX_PROCESSES) and not jax.distributed.is_initialized():
            keras.distribution.initialize()
        devices = jax.device_count()
        model_devices = (model_devices or devices) if shares_tables else 1
        if shares_tables and (devices % model_devices or jax.process_count() > 1):
            raise ValueError(
                "The strategy 'model_parallel' needs one process, and groups of devices that divide all of them. "
                f"Received: groups of {model_devices}, {devices} devices in {jax.process_count()} processes."
            )
        mesh = keras.distribution.DeviceMesh((devices // model_devices, model_devices), (AXIS, "model"))
        layouts = keras.distribution.LayoutMap(mesh)
        self._shares_tables = shares_tables
        if shares_tables:
            layouts[TABLES] = ("model", None)
        distribution = _SharedTables(layout_map=layouts, batch_dim_name=AXIS, auto_shard_dataset=False)
        processes = jax.process_count(), jax.process_index()
        super().__init__(devices // model_devices, *processes, own_rows=True, scope=distribution.scope)

    def synchronize(self, model):
        """Checks that every word table is sharded. JAX itself copies the weights of process 0."""
        if not self._shares_tables:
            return
        tables = [table for layer in model.layers if isinstance(layer, (Input, Output)) for table in layer.tables]
        if not tables:
            raise ValueError(
                "The strategy 'model_parallel' shards the word tables of this package's inputs and outputs, but the "
                f"model has none: use 'data_parallel'. Received: {[variable.path for variable in model.variables][:5]}."
            )
        whole = [table.path for table in tables if not re.fullmatch(TABLES, table.path)]
        if whole:
            raise ValueError(
                "The strategy 'model_parallel' finds word tables by the names of their variables, which must be "
                f"table_0, table_1, …. Received: {whole}."
            )

    def all_reduce_max(self, number):
        if self.processes == 1:
            return number
        from jax.experimental import multihost_utils

        return int(multihost_utils.process_allgather(np.array(number)).max())


class _SharedTables(keras.distribution.ModelParallel):
    def get_variable_layout(self, variable):
        layout, devices = super().get_variable_layout(variable), self.device_mesh.shape[1]
        if layout.axes[:1] == ("model",) and variable.shape[0] % devices:
            raise ValueError(
                "The strategy 'model_parallel' needs bands whose number of words is a multiple of the number of "
                "devices: change the cutoffs or the size of the vocabulary, or use fewer devices. "
                f"Received: {variable.shape[0]} words in {variable.path}, {devices} devices that share them."
            )
        return layout
