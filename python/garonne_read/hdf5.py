# SPDX-License-Identifier: MIT
"""HDF5 files of Garonne as arrays by name; xarray.open_dataset opens them, too, with names of dimensions."""


def _decoded(values):
    if values.dtype.kind not in "OS":
        return values
    return [text.decode("utf-8") if isinstance(text, bytes) else text for text in values.tolist()]


def read_hdf5(path):
    """({name: array or list of texts}, {name: attribute}) of a file; names in groups have slashes."""
    import h5py
    arrays = {}

    def take(name, found):
        if isinstance(found, h5py.Dataset):
            arrays[name] = _decoded(found[()])

    with h5py.File(path, "r") as file:
        file.visititems(take)
        attributes = {name: value.decode() if isinstance(value, bytes) else value for name, value in file.attrs.items()}
    return arrays, attributes


def read_skill(path):
    """The skill.h5 of `garonne eval`: its arrays by name; rmse, bias, relative_l2 and acc are [source, lead, channel]."""
    arrays, attributes = read_hdf5(path)
    if attributes.get("format") != "garonne.skill":
        raise ValueError(f"{path}: is no garonne.skill")
    return arrays
