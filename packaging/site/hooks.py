"""What make docs asks of the site beyond MkDocs: each page has a place in the navigation,
and each link and anchor leads somewhere. Warnings are errors there."""

import logging
import os
import re
import urllib.parse
from html.parser import HTMLParser

from mkdocs.utils import get_relative_url

log = logging.getLogger("mkdocs.site")
repository = os.path.normpath(os.path.join(os.path.dirname(__file__), "..", ".."))


def on_files(files, config):
    """Puts the pages of a directory into the navigation where it names the directory."""
    pages = [file.src_uri for file in files.documentation_pages()]

    def expand(item):
        if isinstance(item, dict):
            return [{title: sum(map(expand, below), [])} for title, below in item.items()]
        if not item.endswith("/"):
            return [item]
        below = [page for page in pages if page.startswith(item)]
        if not below:
            log.warning("navigation: there is no page in %s", item)
        return sorted(below, key=lambda page: (page != item + "README.md", page))

    config["nav"] = sum(map(expand, config["nav"]), [])
    return files


def on_nav(nav, config, files):
    placed = {page.file.src_uri for page in nav.pages}
    for file in files.documentation_pages():
        if file.src_uri not in placed:
            log.warning("%s has no place in the navigation", file.src_uri)
    return nav


def on_page_markdown(markdown, page, config, files):
    """Lets links to source files lead to the forge: the site has documents and pictures."""

    def link(match):
        path = os.path.normpath(os.path.join(os.path.dirname(page.file.src_uri), match[1]))
        if files.get_file_from_path(path) or not os.path.isfile(os.path.join(repository, path)):
            return match[0]
        return "](%s/blob/main/%s)" % (config["repo_url"], path)

    return re.sub(r"\]\(([^)#:\s]+)\)", link, markdown)


def on_post_page(output, page, config):
    """Mends what axe-core finds wrong with the theme's pages, and gives a page with diagrams
    what draws them. The theme asks another host for that only if it is not there."""
    output = output.replace('role="dialog"', 'role="dialog" aria-label="Search"', 1)
    output = output.replace('data-md-component="source"', "")  # it would ask GitHub for numbers
    output = re.sub(r"<th( [^>]*)?></th>", r"<td\1></td>", output)  # a corner is no header
    for scrolls in ('<div class="md-search__scrollwrap"', "<pre><span></span><code", "<pre><code"):
        output = output.replace(scrolls, scrolls + ' tabindex="0"')
    if 'class="mermaid"' not in output:
        return output
    script = get_relative_url("assets/mermaid.js", page.url)
    return output.replace("</head>", '<script src="%s"></script></head>' % script, 1)


class Links(HTMLParser):
    """The anchors of a page, what it links to, and what a browser loads with it."""

    def __init__(self, text):
        super().__init__()
        self.anchors, self.targets, self.loaded = set(), set(), set()
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        for name, value in attributes:
            if name == "id" or (name == "name" and tag == "a"):
                self.anchors.add(value)
            elif name in ("href", "src") and value:
                self.targets.add(value)
                if name == "src" or tag == "link" and ("rel", "canonical") not in attributes:
                    self.loaded.add(value)


def on_post_build(config):
    site = config["site_dir"]
    pages = {}
    for directory, _, names in os.walk(site):
        for name in names:
            if name.endswith(".html") and name != "404.html":
                path = os.path.join(directory, name)
                with open(path, encoding="utf-8") as page:
                    pages[path] = Links(page.read())
    for path, page in pages.items():
        for target in sorted(page.targets):
            url = urllib.parse.urlparse(target)
            if url.scheme or url.netloc:
                if target in page.loaded:
                    log.warning("%s loads %s from another host", os.path.relpath(path, site), target)
                continue
            to = path
            if url.path:
                to = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(url.path)))
                if os.path.isdir(to):
                    to = os.path.join(to, "index.html")
            where = os.path.relpath(path, site)
            if not os.path.exists(to):
                log.warning("%s links to %s, which is not there", where, target)
            elif url.fragment and to in pages and urllib.parse.unquote(url.fragment) not in pages[to].anchors:
                log.warning("%s links to %s, which has no such anchor", where, target)
