# SPDX-License-Identifier: MIT
"""The archive to carry to a machine with a GPU: made of a build, and found whole where it was unpacked."""
import hashlib
import io
import json
import os
import pathlib
import re
import shutil
import struct
import subprocess
import tarfile

from place import ARCHIVE_BUILD, GPU_TESTS, MANIFEST, TORCH_LIBRARIES, Trouble

TOP = "garonne-gpu-check"
# The C library and the driver are the machine's own, whatever it is.
OF_THE_MACHINE = re.compile(r"^(ld-linux|linux-vdso|libc\.|libm\.|libdl\.|libpthread\.|librt\.|libutil\.|libresolv\.|"
                            r"libnss_|libcuda\.so|libnvidia)")
# Opened by name while running, beside libraries that the program is linked to.
OPENED_LATER = ("libcaffe2_nvrtc.so", "libtorch_cuda_linalg.so", "libnvrtc.so*", "libnvrtc-builtins.so*",
                "libnvJitLink.so*")
SOURCES = ("scripts/gpu-check", "scripts/gpu-check.d/*.py", "scripts/bench.d/*.toml", "config/*.toml",
           "config/clusters/*.toml", "tests/apps/gpu_test.py", "tests/apps/support.py", "LICENSE")
# Without these, an archive would miss a line of the list.
NEEDED = ("scripts/gpu-check", "config/gpt2_124m.toml", "tests/apps/gpu_test.py", "tests/apps/support.py")


def hash_of(path):
    found = hashlib.sha256()
    with open(path, "rb") as file:
        for block in iter(lambda: file.read(1 << 20), b""):
            found.update(block)
    return found.hexdigest()


def as_numbers(version):
    return tuple(int(part) for part in re.findall(r"\d+", version))


def c_library_versions(path):
    """The versions of the GNU C library that a program or library asks for, by its section of needed versions."""
    with open(path, "rb") as file:
        head = file.read(64)
        if head[:6] != b"\x7fELF\x02\x01":  # 64 bits, little end first: what there are GPUs for
            return set()
        offset, size, count = struct.unpack_from("<Q", head, 40)[0], *struct.unpack_from("<HH", head, 58)
        file.seek(offset)
        sections = [struct.unpack("<IIQQQQIIQQ", file.read(size)[:64]) for _ in range(count)]

        def content(section):
            file.seek(section[4])
            return file.read(section[5])

        found = set()
        for section in sections:
            if section[1] != 0x6FFFFFFE:  # SHT_GNU_verneed
                continue
            table, names, library = content(section), content(sections[section[6]]), 0
            for _ in range(section[7]):
                _, versions, _, first, further = struct.unpack_from("<HHIII", table, library)
                version = library + first
                for _ in range(versions):
                    _, _, _, name, next_one = struct.unpack_from("<IHHII", table, version)
                    text = names[name:names.index(b"\0", name)].decode()
                    found.update(re.findall(r"^GLIBC_(\d+(?:\.\d+)+)$", text))
                    version += next_one
                library += further
        return found


def libraries_of(path, environment):
    """{name: path} of everything that is loaded with a program or library."""
    said = subprocess.run(["ldd", str(path)], env=environment, capture_output=True, text=True, check=False)
    if said.returncode != 0:
        raise Trouble(f"ldd {path}: {(said.stderr or said.stdout).strip()}")
    missing = [name for name in re.findall(r"^\s*(\S+) => not found", said.stdout, re.M) if not OF_THE_MACHINE.match(name)]
    if missing:
        raise Trouble(f"{path} does not find {', '.join(missing)}; build it again with scripts/setup --cuda --tests")
    found = re.findall(r"^\s*(\S+) => (/\S+)", said.stdout, re.M)
    return {name: pathlib.Path(where) for name, where in found if not OF_THE_MACHINE.match(name)}


def mpi_files():
    """(path in the archive, path here) of Open MPI's launcher and plugins, and those of PMIx.

    Their folders keep their places below the prefix, which OPAL_PREFIX then moves."""
    if shutil.which("ompi_info") is None or shutil.which("mpirun") is None:
        raise Trouble("mpirun and ompi_info of Open MPI are not on the path, and the archive must have them; "
                      "scripts/setup installs them")
    said = subprocess.run(["ompi_info", "--all", "--parsable"], capture_output=True, text=True, check=True).stdout
    paths = dict(re.findall(r"^path:(\w+):(.+)$", said, re.M))
    prefix = pathlib.Path(paths["prefix"])
    files = {}
    for name in ("mpirun", "orterun", "orted", "prterun", "prted"):
        program = pathlib.Path(paths["bindir"]) / name
        if program.exists():
            files[f"mpi/bin/{name}"] = program.resolve()
    folders = [pathlib.Path(paths[name]) for name in ("pkglibdir", "pkgdatadir")]
    folders += prefix.glob("lib/*/pmix*/lib/pmix")
    for folder in folders:
        for file in sorted(folder.glob("*")):
            if file.is_file():
                files[f"mpi/{folder.relative_to(prefix)}/{file.name}"] = file
    for file in sorted(pathlib.Path(paths["sysconfdir"]).glob("*")):
        if file.is_file():
            files[f"mpi/etc/{file.name}"] = file
    return files


def contents(place, environment, with_torch):
    """{path in the archive: path here}"""
    place.expect_program()
    files = {f"{ARCHIVE_BUILD}/bin/garonne": place.program}
    reader = place.program.with_name("garonne-hdf5-reader")
    if reader.exists():
        files[f"{ARCHIVE_BUILD}/bin/{reader.name}"] = reader
    for name in GPU_TESTS:
        if not place.test(name).exists():
            raise Trouble(f"{place.test(name)} is not built; `scripts/setup --cuda --tests` builds it")
        files[f"{ARCHIVE_BUILD}/tests/{name}"] = place.test(name)
    for pattern in SOURCES:
        for file in sorted(place.root.glob(pattern)):
            files[str(file.relative_to(place.root))] = file
    for name in NEEDED:
        if name not in files:
            raise Trouble(f"{place.root / name} is missing, without which the archive is of no use")
    programs = [path for name, path in files.items() if name.startswith(ARCHIVE_BUILD)]
    of_mpi = mpi_files()
    files.update(of_mpi)
    programs += [path for name, path in of_mpi.items() if "/bin/" in name or ".so" in name]
    files.update(closure(programs, environment, with_torch))
    return files


def closure(programs, environment, with_torch):
    """The libraries of programs, and what these open while running, under lib/."""
    libraries = {}
    for program in programs:
        libraries.update(libraries_of(program, environment))
    opened_later = {}
    for folder in sorted({path.parent for path in libraries.values()} |
                         {path.resolve().parent for path in libraries.values()}):
        if not re.search(r"/(torch|nvidia)/", str(folder)):
            continue
        packages = pathlib.Path(re.split(r"/(?:torch|nvidia)/", str(folder))[0])
        # A program for CPUs may stand on a LibTorch that has CUDA's parts, but not what these are linked to.
        for pattern in OPENED_LATER if "libtorch_cuda.so" in libraries else ():
            for path in [*packages.glob(f"torch/lib/{pattern}"), *packages.glob(f"nvidia/*/lib/{pattern}")]:
                opened_later.setdefault(path.name, path)
        for path in packages.glob("scipy_openblas32/lib/libscipy_openblas*.so*"):
            opened_later.setdefault(path.name, path)
    # What ldd says of a program holds for the libraries of its libraries, too.
    for name, path in opened_later.items():
        for further, where in libraries_of(path, environment).items():
            libraries.setdefault(further, where)
        libraries.setdefault(name, path)
    return {f"lib/{name}": path for name, path in libraries.items()
            if with_torch or not name.startswith(TORCH_LIBRARIES)}


def make(place, target, with_torch):
    """Writes a .tar.gz (or .tar) with a manifest of the hashes of all that is in it; returns a line about it."""
    target = pathlib.Path(target)
    if not target.parent.is_dir():
        raise Trouble(f"{target.parent} is no folder; make it first")
    environment = dict(os.environ)
    files = contents(place, environment, with_torch)
    version = subprocess.run([str(place.program), "--version"], capture_output=True, text=True, check=False).stdout
    texts = {}
    if not with_torch:
        found = re.search(r"^torch: (\S+)", version, re.M)
        if not found:
            raise Trouble("--without-torch wants to know the version of LibTorch, which `garonne --version` does not say")
        texts["torch-version.txt"] = found.group(1).split("+")[0] + "\n"
    entries = {name: {"bytes": path.stat().st_size, "sha256": hash_of(path)} for name, path in files.items()}
    for name, text in texts.items():
        entries[name] = {"bytes": len(text.encode()), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    manifest = {"format": "garonne.gpu-check-archive", "version": 1, "program": version.splitlines(),
                "glibc": max({"0"}.union(*map(c_library_versions, files.values())), key=as_numbers),
                "files": dict(sorted(entries.items()))}
    texts[MANIFEST] = json.dumps(manifest, indent=1) + "\n"
    unfinished = target.with_name(target.name + ".part")
    how = {"mode": "w"} if target.suffix == ".tar" else {"mode": "w:gz", "compresslevel": 6}
    with tarfile.open(unfinished, **how) as archive:
        for name, path in sorted(files.items()):
            archive.add(path.resolve(), f"{TOP}/{name}", recursive=False)
        for name, text in sorted(texts.items()):
            entry = tarfile.TarInfo(f"{TOP}/{name}")
            entry.size = len(text.encode())
            entry.mode = 0o644
            archive.addfile(entry, io.BytesIO(text.encode()))
    unfinished.replace(target)
    return (f"{target}: {len(files) + len(texts)} files, {target.stat().st_size / 2**20:.0f} MiB; there: tar -xf "
            f"{target.name} && {TOP}/scripts/gpu-check")


def c_library_of(root):
    """The version of the GNU C library that an archive asks for; none where an older archive does not say."""
    return json.loads((root / MANIFEST).read_text()).get("glibc")


def damage(root):
    """What differs from the manifest, one text a file; none where all is well."""
    try:
        manifest = json.loads((root / MANIFEST).read_text())
        entries = manifest["files"].items()
    except (OSError, ValueError, KeyError) as error:
        return [f"{MANIFEST} cannot be read: {error}"]
    found = []
    for name, entry in entries:
        path = root / name
        if not path.is_file():
            found.append(f"{name} is missing")
        elif path.stat().st_size != entry["bytes"] or hash_of(path) != entry["sha256"]:
            found.append(f"{name} was altered")
    return found
