"""Reports as HTML: `page` of one, `index` of many. One file each, which asks for nothing else and shows nothing as markup that
a script named, printed or raised.

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
