"""A page of finished runs, read as HTML."""

import lxml.html

from headlens.report.artist import report_page


def page_of(*runs):
    return lxml.html.fromstring(report_page(runs))


def said(page, number=0):
    found = page.xpath(f'//section[@id="run-{number}"]//ul[@class="findings"]/li')
    return [one.text_content() for one in found]


def notes(page):
    return [one.text_content() for one in page.xpath('//section//p[@class="note"]')]


def cells(page, title):
    (table,) = page.xpath(f'//h3[text()="{title}"]/following-sibling::div[@class="table"][1]//table')
    return [[cell.text_content() for cell in row] for row in table.xpath("./tbody/tr")]
