"""Text of a plan: by node, each task with the lines that it would change, and what starts anew."""

from __future__ import annotations

from appliance.cli.output import plain
from appliance.site.foreseen import Foreseen
from appliance.site.planning import NodePlan, Plan

LINES = 24
"""How many lines of one difference are shown."""


def show(plan: Plan) -> None:
    """Print a plan."""
    for line in lines(plan):
        print(plain(line, "\t"))


def lines(plan: Plan) -> list[str]:
    """Return the lines of a plan; nodes on which nothing would change share one."""
    found = [f"controller: {what}" for what in plan.controller]
    found += [f"{name}: it has left the site file, and would be closed and refused" for name in plan.left]
    for name, node in plan.nodes.items():
        if node.changes:
            found += ["", *_node(name, node)]
    if same := [name for name, node in plan.nodes.items() if not node.changes]:
        found += ["", f"nothing would change on {', '.join(same)}"]
    without = f", without {', '.join(plan.left_out)}" if plan.left_out else ""
    return [*found, "", f"{plan.site}: {plan.changes} changes with {plan.bundle}{without}; nothing was changed"]


def _node(name: str, node: NodePlan) -> list[str]:
    found = [f"{name}:"]
    if node.whole:
        found.append("  all of it would be installed")
    found += [f"  package {each}" for each in node.packages]
    for task in node.tasks:
        if not task.handler:
            found += [f"  {task.phase}: {task.task}", *_difference(task)]
    if node.secrets:
        found.append(f"  tasks with secrets, of which nothing is shown: {node.secrets}")
    found += [f"  then: {task.phase}: {task.task}" for task in node.tasks if task.handler]
    return found + [f"  {unit} runs what was there before, and would be restarted" for unit in node.restarted]


def _difference(task: Foreseen) -> list[str]:
    told = task.difference.splitlines()
    more = [f"      ... and {len(told) - LINES} more lines, with -o json"] if len(told) > LINES else []
    return [f"      {line}" for line in told[:LINES]] + more
