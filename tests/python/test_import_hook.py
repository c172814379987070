# SPDX-License-Identifier: BSD-3-Clause
"""The probe gets in, whatever a program does before and while it imports torch; and the import system is as it was afterwards.

A tiny package takes torch's place, so that each way costs a fraction of a second. A process in which the probe started leaves its note.

usage: test_import_hook.py [unittest's options]
environment: DDP_DOCTOR=bin/ddp-doctor
"""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap
import unittest
import zipfile

PROBE = pathlib.Path(os.environ["DDP_DOCTOR"]).resolve().parent.parent / "libexec" / "ddp-doctor" / "python"

TORCH = {
    "torch/__init__.py": "from . import autograd\n__version__ = '0.fake'\n",
    "torch/autograd/__init__.py": "def backward(): pass\ndef grad(): pass\n",
    "torch/broken/__init__.py": "",
    "torch/data.txt": "data of the package",
    "alone.py": "import torch\n",  # stands for transformers, lightning, a C extension that imports it
}

# What each program does; checks of its own raise. After it, torch must have been patched exactly once.
PROGRAMS = {
    "import": "import torch",
    "from import": "from torch.autograd import backward",
    "submodule first": "import torch.autograd",
    "as": "import torch as t",
    "inside a function": "def f():\n    import torch\nf()",
    "by another module": "import alone",
    "twice": "import torch\nimport torch",
    "__import__": "__import__('torch')",
    "import_module": "import importlib\nimportlib.import_module('torch.autograd')",
    "exec": "exec('import torch')",
    "in a thread": "import threading\nt = threading.Thread(target=__import__, args=('torch',)); t.start(); t.join()",
    "in two threads": "import threading\nts = [threading.Thread(target=__import__, args=('torch',)) for _ in range(8)]\n[t.start() for t in ts]; [t.join() for t in ts]",
    "in a thread pool": "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(4) as p: list(p.map(__import__, ['torch'] * 8))",
    "type checking": "from typing import TYPE_CHECKING\nif TYPE_CHECKING: import torch\nimport torch",
    "try, other package missing": "try:\n    import no_such_package\nexcept ImportError:\n    import torch",
    # looking without importing
    "find_spec": "from importlib.util import find_spec\nfind_spec('torch')\nimport torch",
    "find_spec often": "from importlib.util import find_spec\nfor _ in range(9): assert find_spec('torch')\nimport torch",
    "find_spec of a submodule": "from importlib.util import find_spec\nassert find_spec('torch.autograd')\nimport torch",
    "find_spec of what is not there": "from importlib.util import find_spec\nassert find_spec('torch_xla') is None\nimport torch",
    "find_spec in threads": "import threading\nfrom importlib.util import find_spec\nts = [threading.Thread(target=find_spec, args=('torch',)) for _ in range(8)]\n[t.start() for t in ts]; [t.join() for t in ts]\nimport torch",
    "find_spec after": "from importlib.util import find_spec\nimport torch\nassert find_spec('torch') is torch.__spec__",
    "PathFinder": "from importlib.machinery import PathFinder\nassert PathFinder.find_spec('torch')\nimport torch",
    "pkgutil": "import pkgutil\nassert any(m.name == 'torch' for m in pkgutil.iter_modules())\nimport torch",
    "pkgutil.find_loader": "import warnings; warnings.simplefilter('ignore')\nimport pkgutil\ngetattr(pkgutil, 'find_loader', pkgutil.get_loader if hasattr(pkgutil, 'get_loader') else print)('torch')\nimport torch",
    "pkgutil.walk_packages": "import pkgutil, os\nlist(pkgutil.walk_packages([os.environ['FAKE'] + '/torch'], 'torch.'))\nimport torch",
    "metadata": "import importlib.metadata\ntry: importlib.metadata.version('torch')\nexcept importlib.metadata.PackageNotFoundError: pass\nimport torch",
    "the spec is the original": """
        import importlib.machinery, importlib.util, os
        spec = importlib.util.find_spec('torch')
        assert type(spec) is importlib.machinery.ModuleSpec and type(spec.loader) is importlib.machinery.SourceFileLoader
        assert spec.origin == os.environ['FAKE'] + '/torch/__init__.py', spec.origin
        assert spec.submodule_search_locations == [os.environ['FAKE'] + '/torch']
        assert '__version__' in spec.loader.get_source('torch') and spec.loader.get_code('torch') and spec.loader.is_package('torch')
        assert spec.loader.get_resource_reader('torch')
        import torch
        assert torch.__spec__.loader is torch.__loader__""",
    "resources": "import importlib.resources as r\nimport torch\nassert hasattr(r, 'files') and r.files('torch').joinpath('data.txt').read_text() == 'data of the package'",
    "inspect": "import inspect, torch\nassert 'fake' in inspect.getsource(torch)",
    # by hand
    "module_from_spec": "import importlib.util, sys\ns = importlib.util.find_spec('torch')\nm = importlib.util.module_from_spec(s)\nsys.modules['torch'] = m\ns.loader.exec_module(m)",
    "module_from_spec of an older spec": "import importlib.util, sys\ns = importlib.util.find_spec('torch')\nimportlib.util.find_spec('torch')\nm = importlib.util.module_from_spec(s)\nsys.modules['torch'] = m\ns.loader.exec_module(m)",
    "a spec from its file": "import importlib.util, sys\ns = importlib.util.find_spec('torch')\nx = importlib.util.spec_from_file_location('torch_copy', s.origin)\nimport torch",
    "LazyLoader": "import importlib.util, sys\ns = importlib.util.find_spec('torch')\nl = importlib.util.LazyLoader(s.loader)\ns.loader = l\nm = importlib.util.module_from_spec(s)\nsys.modules['torch'] = m\nl.exec_module(m)\nassert m.__version__ == '0.fake'",
    "LazyLoader, used late": "import importlib.util, sys\ns = importlib.util.find_spec('torch')\nl = importlib.util.LazyLoader(s.loader)\ns.loader = l\nm = importlib.util.module_from_spec(s)\nsys.modules['torch'] = m\nl.exec_module(m)\nimport json\nimport torch",
    "a lazy module": "import sys, types\nclass Lazy(types.ModuleType):\n    def __getattr__(self, name):\n        import importlib\n        return importlib.import_module(name)\nsys.modules['lazy'] = Lazy('lazy')\nimport lazy\nlazy.torch",
    "a module's __getattr__": "import sys, types\nm = types.ModuleType('m'); m.__getattr__ = lambda name: __import__(name)\nm.torch",
    "reload": "import importlib, torch\nassert importlib.reload(torch) is torch",
    "reload of a submodule": "import importlib, torch, torch.broken\nimportlib.reload(torch.broken)",
    "fails first": "import os, sys\nopen(os.environ['FAKE'] + '/fail', 'w').close()\ntry: import torch\nexcept ImportError: pass\nelse: raise SystemExit('must fail')\nos.remove(os.environ['FAKE'] + '/fail')\nimport torch",
    "not there first": "import sys, os\nkept = sys.path[:]; sys.path[:] = [p for p in sys.path if p != os.environ['FAKE']]\ntry: import torch\nexcept ImportError: pass\nsys.path[:] = kept\nimport torch",
    "None in sys.modules first": "import sys\nsys.modules['torch'] = None\ntry: import torch\nexcept ImportError: pass\ndel sys.modules['torch']\nimport torch",
    "a stub first": "import sys, types\nsys.modules['torch'] = types.ModuleType('torch')\nimport torch\ndel sys.modules['torch']\nimport torch",
    "popped": "import sys, torch\nsys.modules.pop('torch')\nimport torch",
    # import hooks of others
    "another finder first": "import sys\nclass F:\n    def find_spec(self, *a): return None\nsys.meta_path.insert(0, F())\nimport torch",
    "a finder that chains": """
        import importlib.util, sys
        class Finder:
            busy = False
            def find_spec(self, name, path=None, target=None):
                if self.busy or name != 'torch': return None
                self.busy = True
                try: spec = importlib.util.find_spec(name)
                finally: self.busy = False
                inner = spec.loader
                class Loader:
                    def create_module(self, spec): return inner.create_module(spec)
                    def exec_module(self, module): inner.exec_module(module)
                spec.loader = Loader()
                return spec
        sys.meta_path.insert(0, Finder())
        import torch""",
    "a finder that asks PathFinder": """
        import sys
        from importlib.machinery import PathFinder
        class Finder:
            @staticmethod
            def find_spec(name, path=None, target=None): return PathFinder.find_spec(name, path, target)
        sys.meta_path.insert(0, Finder)
        import torch""",
    "a path hook with a loader of its own": """
        import os, sys
        from importlib.machinery import FileFinder, SourceFileLoader
        class Instrumented(SourceFileLoader):
            def exec_module(self, module): super().exec_module(module); module.instrumented = True
        def hook(path):
            if path != os.environ['FAKE']: raise ImportError
            return FileFinder(path, (Instrumented, ['.py']))
        sys.path_hooks.insert(0, hook)
        sys.path_importer_cache.clear()
        import torch
        assert torch.instrumented""",
    "meta_path copied": "import sys\nsys.meta_path[:] = list(sys.meta_path)\nimport torch",
    "meta_path replaced": "import sys\nsys.meta_path = list(sys.meta_path)\nimport torch",
    "meta_path without strangers": "import sys\nsys.meta_path[:] = [f for f in sys.meta_path if isinstance(f, type)]\nimport torch",
    "meta_path reversed": "import sys\nsys.meta_path.reverse()\nimport torch",
    "meta_path wrapped": """
        import sys
        class All:
            def __init__(self, finders): self.finders = finders
            def find_spec(self, name, path=None, target=None):
                for f in self.finders:
                    spec = f.find_spec(name, path, target)
                    if spec is not None: return spec
        sys.meta_path[:] = [All(list(sys.meta_path))]
        import torch""",
    "an editable install": """
        import importlib.util, os, sys
        class Editable:
            @classmethod
            def find_spec(cls, name, path=None, target=None):
                if name == 'torch': return importlib.util.spec_from_file_location(name, os.environ['FAKE'] + '/torch/__init__.py')
        kept = sys.path[:]
        sys.path.remove(os.environ['FAKE'])
        sys.meta_path.append(Editable)
        import torch
        sys.path[:] = kept""",
    "caches cleared": "import importlib, sys\nimportlib.invalidate_caches(); sys.path_importer_cache.clear()\nimport torch",
    "sys.path changed": "import sys\nsys.path.insert(0, '/nowhere')\nimport torch",
    "sys.path without the probe": "import os, sys\nsys.path[:] = [p for p in sys.path if 'libexec' not in p]\nimport torch",
    "the environment cleared": "import os\nkeep = {k: os.environ[k] for k in ('FAKE', 'DDP_DOCTOR_RECORD')}; os.environ.clear(); os.environ.update(keep)\nimport torch",
    "chdir": "import os\nos.chdir('/')\nimport torch",
    "builtins.__import__ replaced": "import builtins\nbefore = builtins.__import__\nbuiltins.__import__ = lambda *a, **k: before(*a, **k)\nimport torch",
    "atexit": "import atexit\nimport torch\natexit.register(print)",
    "runpy.run_path": "import os, runpy\nopen('inner.py', 'w').write('import torch')\nrunpy.run_path('inner.py', run_name='__main__')\nimport torch",
    "runpy.run_module": "import runpy\nrunpy.run_module('alone')",
    "fork": "import os\nimport torch\npid = os.fork()\nif pid == 0: os._exit(0)\nos.waitpid(pid, 0)",
    "import in a fork": "import os\npid = os.fork()\nif pid == 0:\n    import torch\n    os._exit(0)\nos.waitpid(pid, 0)\nimport torch",
}

# The same check in a process that the program starts; each prints it.
CHILD = "import torch; from check import check; check()"
STARTERS = {
    "subprocess": f"import subprocess, sys\nsubprocess.run([sys.executable, '-c', {CHILD!r}], check=True)",
    "subprocess with PYTHONPATH kept": f"import os, subprocess, sys\nsubprocess.run([sys.executable, '-c', {CHILD!r}], env=dict(os.environ, PYTHONPATH='/nowhere:' + os.environ['PYTHONPATH']), check=True)",
    "os.execv": f"import os, sys\nos.execv(sys.executable, [sys.executable, '-c', {CHILD!r}])",
    "os.execvpe": f"import os, sys\nos.execvpe(sys.executable, [sys.executable, '-c', {CHILD!r}], os.environ)",
    "os.system": f"import os, sys\nassert os.system(sys.executable + ' -c {chr(34)}{CHILD}{chr(34)}') == 0",
    "posix_spawn": f"import os, sys\npid = os.posix_spawn(sys.executable, [sys.executable, '-c', {CHILD!r}], os.environ)\nassert os.waitpid(pid, 0)[1] == 0",
    "a shell": f"import subprocess, sys\nsubprocess.run(['sh', '-c', 'exec ' + sys.executable + ' -c {chr(34)}{CHILD}{chr(34)}'], check=True)",
    "env": f"import subprocess, sys\nsubprocess.run(['env', 'A=1', sys.executable, '-c', {CHILD!r}], check=True)",
    "executemany": f"import subprocess, sys\n[subprocess.run([sys.executable, '-c', {CHILD!r}], check=True) for _ in range(2)]",
    "a reloader": f"import os, subprocess, sys\nif os.environ.get('CHILD') is None: sys.exit(subprocess.run([sys.executable] + sys.argv, env=dict(os.environ, CHILD='1')).returncode)\n{CHILD}",
    "spawn": "import multiprocessing as m\nfrom check import imports\nif __name__ == '__main__':\n    p = m.get_context('spawn').Process(target=imports); p.start(); p.join(); assert p.exitcode == 0",
    "spawn from a program with torch": "import multiprocessing as m, torch\nfrom check import imports\nif __name__ == '__main__':\n    p = m.get_context('spawn').Process(target=imports); p.start(); p.join(); assert p.exitcode == 0",
    "forkserver": "import multiprocessing as m\nfrom check import imports\nif __name__ == '__main__':\n    p = m.get_context('forkserver').Process(target=imports); p.start(); p.join(); assert p.exitcode == 0",
    "a forkserver with torch loaded": "import multiprocessing as m\nfrom check import imports\nif __name__ == '__main__':\n    c = m.get_context('forkserver'); c.set_forkserver_preload(['torch'])\n    p = c.Process(target=imports); p.start(); p.join(); assert p.exitcode == 0",
    "a spawned pool": "import multiprocessing as m\nfrom check import imports\nif __name__ == '__main__':\n    with m.get_context('spawn').Pool(1) as p: p.apply(imports)",
    "a process pool": "from concurrent.futures import ProcessPoolExecutor\nimport multiprocessing as m\nfrom check import imports\nif __name__ == '__main__':\n    with ProcessPoolExecutor(1, mp_context=m.get_context('spawn')) as p: p.submit(imports).result()",
}

# Options of the interpreter; what follows says which file or module runs.
FLAGS = [["-X", "importtime"], ["-X", "dev"], ["-X", "faulthandler"], ["-u"], ["-OO"], ["-B"], ["-s"], ["-v"], ["-W", "error::SyntaxWarning"]]

CHECK = '''
import importlib.machinery, sys
def check():
    """The probe is in, once; the import system is Python's own."""
    import torch
    assert hasattr(torch.autograd.backward, "__wrapped__"), "not patched"
    assert not hasattr(torch.autograd.backward.__wrapped__, "__wrapped__"), "patched twice"
    assert not [f for f in sys.meta_path if "ddp_doctor" in type(f).__module__], sys.meta_path
    assert "frozen" in importlib.machinery.PathFinder.find_spec.__code__.co_filename
    assert "exec_module" not in vars(torch.__spec__.loader), vars(torch.__spec__.loader)
    print("checked", flush=True)
def imports():
    import torch
    check()
'''


class ImportHook(unittest.TestCase):
    def run_python(self, name, text="", words=None, files=None, **settings):
        """Runs `text` as a program (or the words) in a folder of its own; returns what failed."""
        with tempfile.TemporaryDirectory(prefix="ddp-doctor-imports-") as folder:
            folder = pathlib.Path(folder)
            (folder / "record").mkdir()
            first = "import os\nif os.path.exists(os.environ.get('FAKE', '') + '/fail'): raise ImportError('not now')\n"
            everything = dict({f"fake/{file}": content for file, content in TORCH.items()}, **{"fake/check.py": CHECK, "program.py": text})
            everything["fake/torch/__init__.py"] = first + everything["fake/torch/__init__.py"]
            for file, content in dict(everything, **(files or {})).items():
                (folder / file).parent.mkdir(parents=True, exist_ok=True)
                (folder / file).write_text(textwrap.dedent(content))
            fill = dict(python=sys.executable, folder=str(folder), fake=str(folder / "fake"), probe=str(PROBE))
            environment = {k: v for k, v in os.environ.items() if not k.startswith(("DDP_DOCTOR", "PYTHON"))}
            environment.update(FAKE=fill["fake"], DDP_DOCTOR_RECORD=str(folder / "record"), PYTHONPATH=f"{PROBE}:{fill['fake']}")
            environment.update({key: value.format(**fill) for key, value in settings.items()})
            if files and "app.zip" in (words or []):
                with zipfile.ZipFile(folder / "app.zip", "w") as archive:
                    archive.write(folder / "program.py", "__main__.py")
            command = [word.format(**fill) for word in words or ["{python}", "program.py"]]
            done = subprocess.run(command, cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
            notes = list((folder / "record").glob("process-*.json"))
            if done.returncode or "checked" not in done.stdout or not notes or "ddp-doctor:" in done.stderr:
                return f"{name}: exit {done.returncode}, {len(notes)} notes\n{done.stdout[-1500:]}{done.stderr[-1500:]}"
        return None

    def all_of(self, cases):
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count() or 1) as pool:
            failures = [failure for failure in pool.map(lambda case: self.run_python(*case[0], **case[1]), cases) if failure]
        self.assertEqual(failures, [], "\n\n".join(failures))

    def test_programs(self):
        self.all_of([((name, textwrap.dedent(text) + "\nfrom check import check\ncheck()\n"), {}) for name, text in PROGRAMS.items()])

    def test_processes_that_a_program_starts(self):
        self.all_of([((name, text), {}) for name, text in STARTERS.items()])

    def test_ways_to_start_a_program(self):
        text = CHILD
        cases = [((" ".join(flags), text), {"words": ["{python}", *flags, "program.py"]}) for flags in FLAGS]
        cases += [((name, text), {"words": words, "files": files}) for name, words, files in (
            ("-m", ["{python}", "-m", "program"], {}),
            ("-c", ["{python}", "-c", CHILD], {}),
            ("a package's __main__", ["{python}", "-m", "package"], {"package/__init__.py": "", "package/__main__.py": CHILD}),
            ("a folder", ["{python}", "package"], {"package/__main__.py": CHILD}),
            ("a zipapp", ["{python}", "app.zip"], {"app.txt": ""}),
            ("standard input", ["sh", "-c", "{python} - <program.py"], {}),
            ("-m runpy", ["{python}", "-m", "runpy", "program"], {}),
            ("-m cProfile", ["{python}", "-m", "cProfile", "program.py"], {}),
            ("-m trace", ["{python}", "-m", "trace", "-l", "program.py"], {}),
            ("exec of a shell script", ["sh", "run.sh"], {"run.sh": "PYTHONPATH=/nowhere:$PYTHONPATH\nexport PYTHONPATH\nexec {0} program.py".format(sys.executable)}),
            ("a link to the interpreter", ["sh", "-c", "ln -s {python} py && ./py program.py"], {}),
        )]
        self.all_of(cases)

    def test_sites(self):
        text = CHILD
        own = "import sys\nsys.own_site = True\n"
        seen = "import sys\nassert sys.own_site\n" + CHILD
        again = "import os, sys\nsys.own_site = True\nhere = os.path.dirname(os.path.abspath(__file__))\nsys.path[:] = [p for p in sys.path if p != here]\n" \
                "sys.modules.pop('sitecustomize', None)\nimport sitecustomize\n"
        site = "{probe}:{folder}/site:{fake}"
        self.all_of([
            (("sitecustomize", seen), {"files": {"site/sitecustomize.py": own}, "PYTHONPATH": site}),
            (("a sitecustomize that imports torch", seen), {"files": {"site/sitecustomize.py": own + "import torch"}, "PYTHONPATH": site}),
            (("a sitecustomize that looks for torch", seen), {"files": {"site/sitecustomize.py": own + "import importlib.util\nimportlib.util.find_spec('torch')"}, "PYTHONPATH": site}),
            (("a sitecustomize that runs the next one", seen), {"files": {"site/sitecustomize.py": again}, "PYTHONPATH": site}),
            (("a sitecustomize before ours that runs the next one", seen), {"files": {"site/sitecustomize.py": again}, "PYTHONPATH": "{folder}/site:{probe}:{fake}"}),
            (("an empty entry of PYTHONPATH", text), {"PYTHONPATH": "{probe}::{fake}"}),
            (("the probe twice on PYTHONPATH", text), {"PYTHONPATH": "{probe}:{probe}:{fake}"}),
            (("the probe last on PYTHONPATH", text), {"PYTHONPATH": "{fake}:{probe}"}),
            (("a conda environment", text), {"CONDA_PREFIX": "{folder}", "CONDA_DEFAULT_ENV": "train", "CONDA_PYTHON_EXE": "{python}"}),
            (("PYTHONSAFEPATH", text), {"PYTHONSAFEPATH": "1"}),
            (("PYTHONNOUSERSITE", text), {"PYTHONNOUSERSITE": "1"}),
            (("PYTHONDONTWRITEBYTECODE", text), {"PYTHONDONTWRITEBYTECODE": "1"}),
            (("PYTHONPROFILEIMPORTTIME", text), {"PYTHONPROFILEIMPORTTIME": "1"}),
            (("a .pth file that imports torch", text), {
                "words": ["sh", "-c", "{python} -m venv --without-pip v && cp torch.pth v/lib/python3*/site-packages/ && v/bin/python program.py"],
                "files": {"torch.pth": "import torch\n"}}),
            (("a .pth file that looks for torch", text), {
                "words": ["sh", "-c", "{python} -m venv --without-pip v && cp torch.pth v/lib/python3*/site-packages/ && v/bin/python program.py"],
                "files": {"torch.pth": "import importlib.util; importlib.util.find_spec('torch')\n"}}),
            (("a .pth file that loads torch lazily", text), {
                "words": ["sh", "-c", "{python} -m venv --without-pip v && cp lazy.pth v/lib/python3*/site-packages/ && v/bin/python program.py"],
                "files": {"lazy.pth": "import importlib.util as u, sys; s = u.find_spec('torch'); l = u.LazyLoader(s.loader); s.loader = l; "
                                      "m = u.module_from_spec(s); sys.modules['torch'] = m; l.exec_module(m)\n"}}),
            (("a virtual environment in another", text), {
                "words": ["sh", "-c", "{python} -m venv --without-pip a && a/bin/python -m venv --without-pip b && b/bin/python program.py"]}),
        ])

    def test_without_the_probe_nothing_is_left(self):
        """Off, or outside a run: not even the hook."""
        text = "import sys, importlib.machinery\nassert not [f for f in sys.meta_path if 'ddp_doctor' in type(f).__module__]\n" \
               "assert 'ddp_doctor' not in importlib.machinery.PathFinder.find_spec.__code__.co_filename\nprint('checked')"
        for settings in ({"DDP_DOCTOR": "0"}, {"DDP_DOCTOR_RECORD": ""}):
            failure = self.run_python("off", text, **settings)
            self.assertIn("exit 0, 0 notes\nchecked", failure)


if __name__ == "__main__":
    unittest.main()
