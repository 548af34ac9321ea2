"""A mock of AWS for Terraform: moto, and beside it what moto lacks of what azq's files ask. `python mock_cloud.py PORT LOG`."""

from __future__ import annotations

import io
import json
import os
import re
import sys
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

os.environ["MOTO_IAM_LOAD_MANAGED_POLICIES"] = "true"

Parameters = dict[str, str]
ARN = "arn:aws:{}:us-east-1:123456789012:{}:{}"
placed: dict[str, Parameters] = {}  # placement groups by name, as they were created
families: dict[str, Parameters] = {}  # cache parameter groups
cache: Parameters = {}  # the replication group
budget_tags: list[dict[str, str]] = []


def xml(of: Any) -> str:
    """Elements by name; one of a list for each of its items."""
    if not isinstance(of, dict):
        return str(of)
    rows = [(name, each) for name, value in of.items() for each in (value if isinstance(value, list) else [value])]
    return "".join(f"<{name}>{xml(each)}</{name}>" for name, each in rows)


def _placement(name: str) -> Any:
    tag = {"key": placed[name]["TagSpecification.1.Tag.1.Key"], "value": placed[name]["TagSpecification.1.Tag.1.Value"]}
    own = {"groupName": name, "groupId": name, "groupArn": ARN.format("ec2", "placement-group", name)}
    return {**own, "strategy": placed[name]["Strategy"], "state": "available", "tagSet": {"item": tag}}


def _placements(asked: Parameters) -> Any:
    wanted = [value for key, value in asked.items() if key.startswith(("GroupName.", "GroupId."))]
    return {"placementGroupSet": {"item": [_placement(name) for name in placed if not wanted or name in wanted]}}


def _family(asked: Parameters) -> Any:
    of = families[asked["CacheParameterGroupName"]]
    own = {name: of[name] for name in ("CacheParameterGroupName", "CacheParameterGroupFamily", "Description")}
    return {"CacheParameterGroup": {**own, "ARN": ARN.format("elasticache", "parametergroup", of["CacheParameterGroupName"])}}


def _node(asked: Parameters) -> Any:
    shared = {name: cache[name] for name in ("CacheNodeType", "Engine", "EngineVersion", "CacheSubnetGroupName")}
    own = {"CacheClusterId": f"{cache['ReplicationGroupId']}-001", "CacheClusterStatus": "available", "NumCacheNodes": "1"}
    group = {"CacheParameterGroupName": cache["CacheParameterGroupName"]}
    members = {"member": {"SecurityGroupId": cache["SecurityGroupIds.SecurityGroupId.1"]}}
    return {"CacheClusters": {"CacheCluster": {**own, **shared, "CacheParameterGroup": group, "SecurityGroups": members}}}


def _replicated() -> Any:
    name = cache["ReplicationGroupId"]
    end = {"Address": "cache.mock", "Port": "6379"}
    own = {"ReplicationGroupId": name, "ARN": ARN.format("elasticache", "replicationgroup", name), "Status": "available"}
    nodes = {"NodeGroup": {"NodeGroupId": "0001", "Status": "available", "PrimaryEndpoint": end, "NodeGroupMembers": ""}}
    flags = {"AutomaticFailover": "disabled", "MultiAZ": "disabled", "ClusterEnabled": "false", "AuthTokenEnabled": "true"}
    hidden = {"AtRestEncryptionEnabled": "true", "TransitEncryptionEnabled": "true", "Description": cache["ReplicationGroupDescription"]}
    kind = {"CacheNodeType": cache["CacheNodeType"], "Engine": cache["Engine"], "MemberClusters": {"ClusterId": f"{name}-001"}}
    return {"ReplicationGroup": {**own, **kind, **flags, **hidden, "NodeGroups": nodes}}


def _tags(asked: Parameters) -> Any:
    kind, _, name = asked["ResourceName"].partition(":elasticache:")[2].rpartition(":")
    told = families[name] if kind.endswith("parametergroup") else cache
    return {"TagList": {"Tag": {"Key": told["Tags.Tag.1.Key"], "Value": told["Tags.Tag.1.Value"]}}}


def _without_subnets(asked: Parameters) -> Any:
    from moto.elasticache.models import elasticache_backends

    return elasticache_backends["123456789012"]["us-east-1"].cache_subnet_groups.pop(asked["CacheSubnetGroupName"]) and ""


NOEVICTION = {"ParameterName": "maxmemory-policy", "ParameterValue": "noeviction", "Source": "user"}
IN_EC2: dict[str, Callable[[Parameters], Any]] = {
    "CreatePlacementGroup": lambda asked: placed.update({asked["GroupName"]: asked}) or {"placementGroup": _placement(asked["GroupName"])},
    "DescribePlacementGroups": _placements,
    "DeletePlacementGroup": lambda asked: {"return": placed.pop(asked["GroupName"]) and "true"},
    "ModifySecurityGroupRules": lambda asked: {"return": "true"},
}


def _without_cache(asked: Parameters) -> str:
    cache.clear()
    return ""


IN_ELASTICACHE: dict[str, Callable[[Parameters], Any]] = {
    "CreateCacheParameterGroup": lambda asked: families.update({asked["CacheParameterGroupName"]: asked}) or _family(asked),
    "DescribeCacheParameterGroups": lambda asked: {"CacheParameterGroups": _family(asked) if families else ""},
    "ModifyCacheParameterGroup": lambda asked: {"CacheParameterGroupName": asked["CacheParameterGroupName"]},
    "DescribeCacheParameters": lambda asked: {"Parameters": {"Parameter": NOEVICTION}},
    "DeleteCacheParameterGroup": lambda asked: families.pop(asked["CacheParameterGroupName"]) and "",
    "DeleteCacheSubnetGroup": _without_subnets,
    "DescribeCacheClusters": _node,
    "CreateReplicationGroup": lambda asked: cache.update(asked) or _replicated(),
    "DescribeReplicationGroups": lambda asked: {"ReplicationGroups": _replicated() if cache else ""},
    "DeleteReplicationGroup": _without_cache,
}


class Cloud:
    """The application: each call is answered here, or by moto, and noted."""

    def __init__(self, moto: Any, log: Path) -> None:
        self._moto, self._log = moto, log

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        asked = {key: values[0] for key, values in parse_qs(body.decode("utf-8", "replace")).items()}
        place = f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        what = asked.get("Action") or environ.get("HTTP_X_AMZ_TARGET") or place

        def note(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            with self._log.open("a") as file:
                file.write(f"{status[:3]} {what}\n")
            return start(status, headers, *rest)

        if what == "AWSBudgetServiceGateway.CreateBudget":
            budget_tags[:] = json.loads(body).get("ResourceTags", [])
        if what == "AWSBudgetServiceGateway.ListTagsForResource":
            note("200 OK", [("Content-Type", "application/x-amz-json-1.1")])
            return [json.dumps({"ResourceTags": budget_tags}).encode()]
        grouped = what == "ListTagsForResource" and re.search(":(parameter|replication)group:", asked.get("ResourceName", ""))
        if answer := _tags if grouped else IN_EC2.get(what) or IN_ELASTICACHE.get(what):
            note("200 OK", [("Content-Type", "text/xml")])
            found = answer(asked)
            return [xml({f"{what}Response": found if what in IN_EC2 else {f"{what}Result": found}}).encode()]
        return list(self._moto(environ, note))


def main(port: int, log: Path) -> None:
    from moto import server
    from werkzeug.serving import run_simple

    run_simple("127.0.0.1", port, Cloud(server.DomainDispatcherApplication(server.create_backend_app), log), threaded=True)  # type: ignore[attr-defined]


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
