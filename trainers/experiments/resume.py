"""Starts training at any update. `fit` of Keras starts at an epoch, but a checkpoint may lie within an epoch."""

import sys

import keras


def fit(model, backup, batches, every, epochs, valid, callbacks):
    """Trains from the update that `backup` has restored to the end of epoch `epochs`.

    An epoch lasts from one validation to the next, `every` updates. `batches()` begins with the update of `backup`.
    """
    model.stop_training = False  # a callback may set it at the end of an epoch
    if backup.step == every:
        _validate(model, backup.epoch, valid, callbacks)
    elif backup.step:
        _fit_epochs(model, batches(), backup, every - backup.step, backup.epoch + 1, valid, callbacks)
    if backup.epoch < epochs and not model.stop_training:
        _fit_epochs(model, batches(), backup, every, epochs, valid, callbacks)


def _fit_epochs(model, batches, backup, steps, last, valid, callbacks):
    model.fit(
        batches,
        shuffle=False,
        steps_per_epoch=steps,
        initial_epoch=backup.epoch,
        epochs=last,
        validation_data=valid,
        callbacks=callbacks,
        verbose=0 if not backup.writes else 1 if sys.stdout.isatty() else 2,
    )


def _validate(model, epoch, valid, callbacks):
    """Runs the validation in which training was stopped, and ends the epoch."""
    callbacks = keras.callbacks.CallbackList(callbacks, model=model)
    callbacks.on_train_begin()
    logs = model.evaluate(valid, callbacks=callbacks, verbose=0, return_dict=True)
    callbacks.on_epoch_end(epoch, {f"val_{name}": value for name, value in logs.items()})
    callbacks.on_train_end()
