"""Reports as HTML: `page` for one, `index` for many. Each is one file that loads nothing else. What a script named, printed or
raised is never shown as markup.

    safe           text, and the document around it: what is escaped, shortened, and allowed to run
    single         the page of one report: the order of its sections, which are in parts and pictures
    table          the table of many reports
    charts, heat   the pictures: inline SVG, and the map of errors as a PNG inside it
    *.css, *.js    what the pages carry inside
"""

from .safe import read
from .single import page
from .table import index

__all__ = ["index", "page", "read"]
