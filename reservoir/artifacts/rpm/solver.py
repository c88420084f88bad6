"""Solver, by libsolv: from repositories' metadata and an empty system to every package that must be installed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Any
from urllib.parse import urljoin

import solv

from common.errors import InputError, IntegrityError
from reservoir.artifacts.rpm.describe import SOURCE_RPM
from reservoir.artifacts.rpm.metadata import MetadataFile, Sum, beside
from reservoir.artifacts.rpm.source import Repository

Selection = solv.Selection
FLAGS = (
    Selection.SELECTION_NAME
    | Selection.SELECTION_PROVIDES
    | Selection.SELECTION_FILELIST
    | Selection.SELECTION_CANON
    | Selection.SELECTION_DOTARCH
    | Selection.SELECTION_REL
)


@dataclass(frozen=True)
class Rpm:
    """A package as a repository offers it; `version` is epoch, version and release, `known` its hash there.

    `source` is the file name of the source package that it was built from.
    """

    name: str
    version: str
    arch: str
    url: str
    size: int
    known: Sum
    repository: Repository
    licence: str
    source: str

    @property
    def filename(self) -> str:
        """Return the name of its file."""
        return PurePosixPath(self.url).name

    @property
    def identity(self) -> str:
        """Return name, epoch, version, release and architecture, as modules write them."""
        epoch = "" if ":" in self.version else "0:"
        return f"{self.name}-{epoch}{self.version}.{self.arch}"


class Solver:
    """All packages of some repositories for machines of one architecture, in the distributions' own word for it."""

    def __init__(self, arch: str) -> None:
        """Make a solver that knows no package yet."""
        self._pool: Any = solv.Pool()
        self._pool.setdisttype(solv.Pool.DISTTYPE_RPM)
        self._pool.setarch(arch)
        self._arch = arch
        self._repositories: dict[int, Repository] = {}
        self._unfit: dict[int, str] = {}

    def add(self, repository: Repository, files: Mapping[str, MetadataFile]) -> None:
        """Read the packages of a repository; `files` are its `primary` and, for file dependencies, its `filelists`.

        Raises IntegrityError where they are malformed.
        """
        repo = self._pool.add_repo(repository.name)
        self._repositories[repo.id] = repository
        for name, flags in (("primary", 0), ("filelists", repo.REPO_EXTEND_SOLVABLES)):
            if name in files:
                # what this build of libsolv can unpack differs from machine to machine
                with files[name].plain() as path:
                    read = repo.add_rpmmd(solv.xfopen(str(path)), None, flags)
                if not read:
                    raise IntegrityError(
                        f"the metadata of {repository.name} cannot be read: {self._pool.errstr}",
                        where=urljoin(repository.url, files[name].name),
                        hint="ask the keeper of the package source",
                    )
        for solvable in repo.solvables_iter():
            if solvable.arch not in (self._arch, "noarch"):
                self._unfit[solvable.id] = f"is for {solvable.arch}"

    def hide(self, why: Callable[[Rpm], str]) -> None:
        """Take packages out of the choice: those for which `why` gives a reason."""
        for solvable in self._pool.solvables_iter():
            if solvable.id not in self._unfit and (reason := why(self._described(solvable))):
                self._unfit[solvable.id] = reason

    def prepare(self) -> None:
        """Make ready to solve, when everything was added and hidden."""
        self._pool.addfileprovides()
        self._pool.set_disabled_list(sorted(self._unfit))
        self._pool.createwhatprovides()

    def closure(self, names: Sequence[str], where: str, *, recommends: bool) -> list[Rpm]:
        """Return `names`, which are packages or what packages provide, and all that they need; `where` for errors.

        Raises InputError that lists every unknown name, or says in libsolv's words why there is no solution.
        """
        selected = {name: self._pool.select(name, FLAGS) for name in names}
        if unknown := [name for name, selection in selected.items() if selection.isempty()]:
            raise InputError(
                f"no package is or provides: {', '.join(unknown)}{self._hints(unknown)}",
                where=where,
                hint="correct the name, enable its module under `modules`, or add a source that has it",
            )
        solver = self._pool.Solver()
        solver.set_flag(solver.SOLVER_FLAG_IGNORE_RECOMMENDED, int(not recommends))
        solver.set_flag(solver.SOLVER_FLAG_YUM_OBSOLETES, 1)
        jobs = [self._job(selection) for selection in selected.values()]
        if problems := solver.solve(jobs):
            said = list(dict.fromkeys(info.problemstr() for problem in problems for info in _reasons(problem)))
            asked = dict.fromkeys(info.dep.str() for problem in problems for info in _reasons(problem) if info.dep)
            raise InputError(
                f"the packages cannot be installed together: {'; '.join(said)}{self._hints(asked)}",
                where=where,
                hint="take what contradicts out, enable what is hidden, or add a source that has what is missing",
            )
        chosen = [self._described(solvable) for solvable in solver.transaction().newsolvables()]
        return sorted(chosen, key=lambda rpm: (rpm.name, rpm.identity))

    def epochs(self, sources: Collection[str]) -> dict[str, str]:
        """Return the epoch of source packages by their file names, which do not have it.

        It is that of the source itself, else of the package of its name, else of one with its version, as far as the
        repositories offer any; of the others nothing is known.
        """
        found: dict[str, tuple[int, str]] = {}
        for solvable in self._pool.solvables_iter():
            named = solvable.arch in ("src", "nosrc")
            source = f"{solvable.name}-{_plain(solvable.evr)}.src.rpm" if named else solvable.lookup_sourcepkg()
            if source in sources and (match := SOURCE_RPM.match(source)):
                same = _plain(solvable.evr) == f"{match['version']}-{match['release']}"
                rank = 0 if named else 1 if same and solvable.name == match["name"] else 2
                if same and rank < found.get(source, (9, ""))[0]:
                    epoch, colon, _ = solvable.evr.partition(":")
                    found[source] = rank, epoch if colon else "0"
        return {source: epoch for source, (_, epoch) in found.items()}

    def _job(self, selection: Any) -> Any:
        """Return the order to install one of the selected packages; as with dnf, what replaces them will do, too."""
        chosen = selection.solvables()
        if selection.flags & Selection.SELECTION_NAME:
            replacing = (self._pool.matchsolvable(one, 0, solv.SOLVABLE_OBSOLETES, 0).solvables() for one in chosen)
            chosen = [*chosen, *(other for others in replacing for other in others)]
        ids = self._pool.towhatprovides(sorted({solvable.id for solvable in chosen}))
        return self._pool.Job(solv.Job.SOLVER_INSTALL | solv.Job.SOLVER_SOLVABLE_ONE_OF, ids)

    def _described(self, solvable: Any) -> Rpm:
        """Return what the metadata says about a package."""
        repository = self._repositories[solvable.repo.id]
        place, _ = solvable.lookup_location()
        known = solvable.lookup_checksum(solv.SOLVABLE_CHECKSUM)
        base = solvable.lookup_str(solv.SOLVABLE_MEDIABASE) or repository.url
        return Rpm(
            name=solvable.name,
            version=solvable.evr,
            arch=solvable.arch,
            url=beside(repository.url, urljoin(f"{base.rstrip('/')}/", place)),
            size=solvable.lookup_num(solv.SOLVABLE_DOWNLOADSIZE),
            known=Sum(known.typestr(), known.hex()) if known else Sum("nothing", ""),
            repository=repository,
            licence=solvable.lookup_str(solv.SOLVABLE_LICENSE) or "",
            source=solvable.lookup_sourcepkg() or "",
        )

    def _hints(self, wanted: Iterable[str]) -> str:
        """Return which packages would be or provide what is wanted, and why each is out of the choice."""
        found = {
            f"{solvable} {self._unfit[solvable.id]}": None
            for name in wanted
            for solvable in self._pool.select(name, FLAGS | Selection.SELECTION_WITH_DISABLED).solvables()
            if solvable.id in self._unfit
        }
        return f" ({'; '.join(found)})" if found else ""


def _plain(evr: str) -> str:
    """Return version and release without the epoch."""
    return evr.rpartition(":")[2]


def _reasons(problem: Any) -> Collection[Any]:
    """Return the single contradictions that make up a problem, without the jobs themselves."""
    infos = [info for rule in problem.findallproblemrules() for info in rule.allinfos()]
    return [info for info in infos if info.type != solv.Solver.SOLVER_RULE_JOB] or infos
