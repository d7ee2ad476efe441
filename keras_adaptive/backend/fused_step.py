from keras import ops


def fused_step(optimizer, gradients, variables, learning_rate, slots, kernel):
    """Updates all variables by one kernel of torch.

    The kernels ignore strides and need contiguous tensors. A variable of another layout is updated by the optimizer's
    `update_step`. `slots` is a tuple of lists of optimizer variables, one per trainable variable, and `kernel` a
    function of `(parameters, gradients, *slots, learning_rate)`: lists of tensors, and a scalar tensor.
    """
    import torch

    fused = []
    with torch.no_grad():
        for gradient, variable in zip(gradients, variables, strict=True):
            index = optimizer._get_variable_index(variable)
            tensors = variable.value, *(slot[index].value for slot in slots)
            if all(tensor.is_contiguous() for tensor in tensors):
                fused.append((tensors[0], gradient.to(tensors[0].dtype).contiguous(), *tensors[1:]))
            else:
                optimizer.update_step(gradient, variable, learning_rate)
        if fused:
            kernel(*(list(tensors) for tensors in zip(*fused, strict=True)), ops.convert_to_tensor(learning_rate))
