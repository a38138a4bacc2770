"""What the sites of a model write, from the table by token."""

from headlens.residual.stream import BY_TOKEN


def by_site(lens, made):
    """The measures by token of every site, [part, token]."""
    rows = dict(iter(made.per_token.groupby(["stack", "layer"])))
    return {
        site: {
            name: rows[site.stack, site.layer][name].to_numpy().reshape(-1, len(made.tokens[site.stack]))
            for name in BY_TOKEN
        }
        for site in lens.anatomy.sites
    }
