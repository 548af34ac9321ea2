"""A mock of AWS for Terraform: moto, and beside it what moto lacks of what azq's modules ask. `python mock_cloud.py PORT LOG`."""

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
NOEVICTION = {"ParameterName": "maxmemory-policy", "ParameterValue": "noeviction", "Source": "user"}

groups: dict[str, Parameters] = {}  # placement groups by name, as they were created
families: dict[str, Parameters] = {}  # cache parameter groups by name, as they were created
cache: Parameters = {}  # the replication group, as it was created
budget_tags: list[dict[str, str]] = []


def placement(asked: Parameters) -> str:
    name = asked["GroupName"]
    groups[name] = asked
    return f"<placementGroup>{_group(name)}</placementGroup>"


def placements(asked: Parameters) -> str:
    wanted = [value for key, value in asked.items() if key.startswith(("GroupName.", "GroupId."))]
    found = [name for name in groups if not wanted or name in wanted]
    return f"<placementGroupSet>{''.join(f'<item>{_group(name)}</item>' for name in found)}</placementGroupSet>"


def _group(name: str) -> str:
    arn = f"arn:aws:ec2:us-east-1:123456789012:placement-group/{name}"
    of = {"groupName": name, "groupId": name, "groupArn": arn, "strategy": groups[name]["Strategy"], "state": "available"}
    tag = {"key": groups[name]["TagSpecification.1.Tag.1.Key"], "value": groups[name]["TagSpecification.1.Tag.1.Value"]}
    of["tagSet"] = f"<item>{_xml(tag)}</item>"
    return _xml(of)


def no_placement(asked: Parameters) -> str:
    groups.pop(asked["GroupName"])
    return "<return>true</return>"


def parameters(asked: Parameters) -> str:
    name = asked["CacheParameterGroupName"]
    families[name] = asked
    return f"<CacheParameterGroup>{_family(name)}</CacheParameterGroup>"


def parameter_groups(asked: Parameters) -> str:
    wanted = asked.get("CacheParameterGroupName")
    found = [name for name in families if wanted in (None, name)]
    found_xml = "".join(f"<CacheParameterGroup>{_family(name)}</CacheParameterGroup>" for name in found)
    return f"<CacheParameterGroups>{found_xml}</CacheParameterGroups>"


def _family(name: str) -> str:
    of = {
        "CacheParameterGroupName": name,
        "CacheParameterGroupFamily": families[name]["CacheParameterGroupFamily"],
        "Description": "Managed by Terraform",
        "ARN": f"arn:aws:elasticache:us-east-1:123456789012:parametergroup:{name}",
    }
    return _xml(of)


def no_parameters(asked: Parameters) -> str:
    families.pop(asked["CacheParameterGroupName"], None)
    return ""


def tags(asked: Parameters) -> str:
    of, _, name = asked["ResourceName"].partition(":elasticache:")[2].rpartition(":")
    told = families[name] if of.endswith("parametergroup") else cache
    return f"<TagList><Tag><Key>{told['Tags.Tag.1.Key']}</Key><Value>{told['Tags.Tag.1.Value']}</Value></Tag></TagList>"


def nodes(asked: Parameters) -> str:
    """The node of the replication group."""
    one = {"CacheClusterId": f"{cache['ReplicationGroupId']}-001", "CacheClusterStatus": "available", "NumCacheNodes": "1", **_shared()}
    one["CacheParameterGroup"] = f"<CacheParameterGroupName>{cache['CacheParameterGroupName']}</CacheParameterGroupName>"
    one["SecurityGroups"] = f"<member><SecurityGroupId>{cache['SecurityGroupIds.SecurityGroupId.1']}</SecurityGroupId></member>"
    return f"<CacheClusters><CacheCluster>{_xml(one)}</CacheCluster></CacheClusters>"


def _shared() -> Parameters:
    return {name: cache[name] for name in ("CacheNodeType", "Engine", "EngineVersion", "CacheSubnetGroupName")}


def replication_group(asked: Parameters) -> str:
    cache.update(asked)
    return f"<ReplicationGroup>{_replicated()}</ReplicationGroup>"


def replication_groups(asked: Parameters) -> str:
    return f"<ReplicationGroups><ReplicationGroup>{_replicated()}</ReplicationGroup></ReplicationGroups>" if cache else ""


def no_replication_group(asked: Parameters) -> str:
    cache.clear()
    return ""


def _replicated() -> str:
    node = f"<ClusterId>{cache['ReplicationGroupId']}-001</ClusterId>"
    end = "<PrimaryEndpoint><Address>cache.mock</Address><Port>6379</Port></PrimaryEndpoint>"
    group = f"<NodeGroup><NodeGroupId>0001</NodeGroupId><Status>available</Status>{end}<NodeGroupMembers/></NodeGroup>"
    of = {
        "ReplicationGroupId": cache["ReplicationGroupId"],
        "ARN": f"arn:aws:elasticache:us-east-1:123456789012:replicationgroup:{cache['ReplicationGroupId']}",
        "Description": cache["ReplicationGroupDescription"],
        "Status": "available",
        "MemberClusters": node,
        "NodeGroups": group,
        "AutomaticFailover": "disabled",
        "MultiAZ": "disabled",
        "ClusterEnabled": "false",
        "AtRestEncryptionEnabled": "true",
        "TransitEncryptionEnabled": "true",
        "AuthTokenEnabled": "true",
        "CacheNodeType": cache["CacheNodeType"],
        "Engine": cache["Engine"],
    }
    return _xml(of)


def _xml(of: Parameters) -> str:
    return "".join(f"<{key}>{value}</{key}>" for key, value in of.items())


def no_subnets(asked: Parameters) -> str:
    from moto.elasticache.models import elasticache_backends

    elasticache_backends["123456789012"]["us-east-1"].cache_subnet_groups.pop(asked["CacheSubnetGroupName"])
    return ""


LACKING: dict[str, Callable[[Parameters], str]] = {
    "CreatePlacementGroup": placement,
    "DescribePlacementGroups": placements,
    "DeletePlacementGroup": no_placement,
    "ModifySecurityGroupRules": lambda asked: "<return>true</return>",
    "CreateCacheParameterGroup": parameters,
    "DescribeCacheParameterGroups": parameter_groups,
    "ModifyCacheParameterGroup": lambda asked: f"<CacheParameterGroupName>{asked['CacheParameterGroupName']}</CacheParameterGroupName>",
    "DescribeCacheParameters": lambda asked: f"<Parameters><Parameter>{_xml(NOEVICTION)}</Parameter></Parameters>",
    "DeleteCacheSubnetGroup": no_subnets,
    "DescribeCacheClusters": nodes,
    "CreateReplicationGroup": replication_group,
    "DescribeReplicationGroups": replication_groups,
    "DeleteReplicationGroup": no_replication_group,
    "DeleteCacheParameterGroup": no_parameters,
}


class Cloud:
    """The application: each call is answered here, or by moto, and noted."""

    def __init__(self, moto: Any, log: Path) -> None:
        self._moto, self._log = moto, log

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        body = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        environ["wsgi.input"] = io.BytesIO(body)
        asked = {key: values[0] for key, values in parse_qs(body.decode("utf-8", "replace")).items()}
        what = (
            asked.get("Action")
            or environ.get("HTTP_X_AMZ_TARGET")
            or f"{environ['REQUEST_METHOD']} {environ['PATH_INFO']}?{environ['QUERY_STRING']}"
        )

        def note(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            with self._log.open("a") as file:
                file.write(f"{status[:3]} {what}\n")
            return start(status, [each for each in headers if each[0] != "Content-Length"], *rest)

        if what == "AWSBudgetServiceGateway.CreateBudget":
            budget_tags[:] = json.loads(body).get("ResourceTags", [])
        if what == "AWSBudgetServiceGateway.ListTagsForResource":
            note("200 OK", [("Content-Type", "application/x-amz-json-1.1")])
            return [json.dumps({"ResourceTags": budget_tags}).encode()]
        if (answer := LACKING.get(what)) or (
            what == "ListTagsForResource" and re.search(":(parameter|replication)group:", asked.get("ResourceName", ""))
        ):
            note("200 OK", [("Content-Type", "text/xml")])
            text = (answer or tags)(asked)
            inner = text if what.endswith(("PlacementGroup", "PlacementGroups", "Rules")) else f"<{what}Result>{text}</{what}Result>"
            return [f"<{what}Response><requestId>1</requestId>{inner}</{what}Response>".encode()]
        return list(self._moto(environ, note))


def main(port: int, log: Path) -> None:
    from moto.server import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import run_simple

    run_simple("127.0.0.1", port, Cloud(DomainDispatcherApplication(create_backend_app), log), threaded=True)  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    main(int(sys.argv[1]), Path(sys.argv[2]))
